// Runs SQL with DuckDB for whoever writes requests to its standard input, a line of
// JSON each, and reads the answers, lines of JSON too, from its standard output:
//
//	{"sql": "select $1 + 1 as n", "params": [["i", "41"]]}
//	{"row": {"n": 42}}
//	{"done": {"rows": 1, "ms": 0.8}}
//
// or, instead of the last one, {"error": "..."}. A session goes on after an error and
// ends with its input. By hand:
//
//	echo '{"sql": "select 42 as n"}' | node infra/duckdb/query.mjs "$(infra/duckdb/install.sh)"
//
// JSON has fewer types than SQL. Null, booleans, whole numbers of any size and text are
// themselves; all others are pairs of a letter and a value: ["b", base64] bytes,
// ["f", text] a floating-point number, ["d", text] a decimal, ["t", microseconds since
// 1970] a time, ["l", [...]] a list, ["s", {...}] a struct. Parameters are written the
// same way, but whole numbers as ["i", text].

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import path from 'node:path';

const folder = path.resolve(process.argv.at(-1)); // that install.sh prints
const duckdb = createRequire(path.join(folder, 'package.json'))('@duckdb/node-api');

const {
  DuckDBBlobValue, DuckDBDecimalValue, DuckDBListValue, DuckDBStructValue,
  DuckDBTimestampTZValue, DuckDBTimestampValue, DuckDBTypeId, DOUBLE,
} = duckdb;

const pair = (letter, text) => `["${letter}",${text}]`;
const quote = (v) => JSON.stringify(String(v));

// encode gives a value of DuckDB as JSON.
function encode(v, type) {
  if (v === null || v === undefined) return 'null';
  switch (typeof v) {
    case 'boolean':
    case 'bigint':
      return String(v);
    case 'string':
      return quote(v);
    case 'number':
      return type.typeId === DuckDBTypeId.DOUBLE || type.typeId === DuckDBTypeId.FLOAT ? pair('f', quote(v)) : String(v);
  }
  if (v instanceof DuckDBBlobValue) return pair('b', quote(Buffer.from(v.bytes).toString('base64')));
  if (v instanceof DuckDBDecimalValue) return pair('d', quote(v));
  if (v instanceof DuckDBTimestampTZValue || v instanceof DuckDBTimestampValue) return pair('t', String(v.micros));
  if (v instanceof DuckDBListValue) return pair('l', `[${v.items.map((item) => encode(item, type.valueType)).join(',')}]`);
  if (v instanceof DuckDBStructValue) {
    const fields = type.entryNames.map((name, i) => `${quote(name)}:${encode(v.entries[name], type.entryTypes[i])}`);
    return pair('s', `{${fields.join(',')}}`);
  }
  return quote(v); // dates, intervals and the like
}

// decode gives a parameter as a value of DuckDB.
function decode(p) {
  if (!Array.isArray(p)) return p;
  const [letter, v] = p;
  switch (letter) {
    case 'i': return BigInt(v);
    case 'f': return Number(v);
    case 'b': return new DuckDBBlobValue(new Uint8Array(Buffer.from(v, 'base64')));
    case 't': return new DuckDBTimestampTZValue(BigInt(v));
  }
  throw new Error(`a parameter has the unknown type ${letter}`);
}

// print waits while the reader of the answers is behind.
async function print(line) {
  if (!process.stdout.write(line + '\n')) await once(process.stdout, 'drain');
}

async function answer(connection, request) {
  const begin = performance.now();
  const params = request.params ?? [];
  // The type of a floating-point number is not to be guessed from its value.
  const given = params.map((p) => (Array.isArray(p) && p[0] === 'f' ? DOUBLE : undefined));
  const result = await connection.stream(request.sql, params.map(decode), given);
  const names = result.deduplicatedColumnNames().map(quote);
  const types = result.columnTypes();
  let rows = 0;
  for await (const chunk of result.yieldRows()) {
    rows += chunk.length;
    const lines = chunk.map((row) => `{"row":{${row.map((v, i) => `${names[i]}:${encode(v, types[i])}`).join(',')}}}`);
    if (lines.length > 0) await print(lines.join('\n'));
  }
  await print(JSON.stringify({ done: { rows, ms: performance.now() - begin } }));
}

const instance = await duckdb.DuckDBInstance.create(':memory:');
const connection = await instance.connect();
await connection.run("set TimeZone = 'UTC'"); // what it prints is the same everywhere
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  try {
    await answer(connection, JSON.parse(line));
  } catch (err) {
    await print(JSON.stringify({ error: String(err.message ?? err) }));
  }
}
