package rows

import "unicode/utf8"

// appendString writes text as a JSON string, and escapes no more than JSON asks for.
// What is not UTF-8 becomes U+FFFD: callers look before.
func appendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, text[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c < ' ' || c == '"' || c == '\\' {
			dst = appendEscape(append(dst, text[from:i]...), c)
			from = i + 1
		}
		i++
	}
	return append(append(dst, text[from:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

// jsonSize is the most that text can take as a JSON string.
func jsonSize(text []byte) int {
	const surely = 64 << 10 // or less: then the bound does not matter
	if len(text) <= surely {
		return len(text) + 2
	}
	n := len(text) + 2
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			n += 5
		}
	}
	return n
}
