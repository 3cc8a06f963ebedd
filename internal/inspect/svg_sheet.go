package inspect

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sheet collects the text of a picture.
type sheet struct{ bytes.Buffer }

func (p *sheet) put(format string, args ...any) { fmt.Fprintf(&p.Buffer, format, args...) }

// num gives a length in pixels, to a hundredth.
func num(v float64) string { return string(appendNum(nil, v)) }

func appendNum(b []byte, v float64) []byte {
	return strconv.AppendFloat(b, math.Round(v*100)/100+0, 'f', -1, 64) // + 0 makes a zero of -0
}

func (p *sheet) numbers(command byte, list ...float64) {
	b := append(p.AvailableBuffer(), command)
	for i, v := range list {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendNum(b, v)
	}
	p.Write(b)
}

func (p *sheet) move(x, y float64) { p.numbers('M', x, y) }
func (p *sheet) line(x, y float64) { p.numbers('L', x, y) }

// curve goes smoothly between two points that both are passed horizontally.
func (p *sheet) curve(x0, y0, x1, y1 float64) {
	mid := (x0 + x1) / 2
	p.numbers('C', mid, y0, mid, y1, x1, y1)
}

// text puts a text at a place. What it says comes from [plain] or is our own.
func (p *sheet) text(x, y float64, class, text string) {
	p.put(`<text x="%s" y="%s" class="%s">%s</text>`+"\n", num(x), num(y), class, escape(text))
}

func (p *sheet) rule(x0, y0, x1, y1 float64, class string) {
	p.put(`<path d="M%s %sL%s %s" class="%s"/>`+"\n", num(x0), num(y0), num(x1), num(y1), class)
}

func (p *sheet) rect(b box, class string) {
	p.put(`<rect x="%s" y="%s" width="%s" height="%s" class="%s"/>`+"\n", num(b.x0), num(b.y0), num(b.width()), num(b.height()), class)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder cannot fail
	return b.String()
}

// plain makes one line of at most so many characters of a text that anybody can
// have written.
func plain(s string, most int) string {
	cut := len(s) > 8*most
	if cut {
		s = s[:8*most]
	}
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if cut || utf8.RuneCountInString(s) > most {
		runes := []rune(s)
		s = string(runes[:min(len(runes), most-1)]) + "…"
	}
	return s
}
