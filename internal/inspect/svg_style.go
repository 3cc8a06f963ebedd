package inspect

import (
	"fmt"
	"math"
	"strings"
)

// Colours of bands: of what part of its target, or of the greatest load there is,
// a segment takes. They are named "l0", "l1" and so on, which is "lf" for the last
// one; "u" is for a load that is not known.
const unknown = "u"

// aboveTarget is the first colour of segments that take more than their target.
const aboveTarget = 11

// bounds are the parts of the target at which "l1", "l2", … begin.
var bounds = []float64{0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 3}

// relative are the parts of the greatest load at which they begin where no target
// is known, so that nothing is above it. Quiet segments can be told apart beside a
// busy one.
var relative = []float64{0.004, 0.02, 0.05, 0.1, 0.17, 0.25, 0.35, 0.5, 0.65, 0.8}

var levelNames = func() (names [16]string) {
	for i := range names {
		names[i] = fmt.Sprintf("l%x", i)
	}
	return names
}()

func className(i int) string { return levelNames[i] }

// classOf is the colour of a load among bounds that are parts of something.
func classOf(load float64, bounds []float64, of float64) string {
	i := 0
	for i < len(bounds) && load > 0 && load >= bounds[i]*of {
		i++
	}
	return className(i)
}

// inkOn is the class of a text on a band.
func inkOn(class string) string {
	switch {
	case class == unknown || class < className(8):
		return "i0"
	case class < className(aboveTarget+1):
		return "i1"
	}
	return "i2"
}

// rgb is a colour.
type rgb [3]uint8

func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]) }

// lightness as it is perceived, CIE L*: 0 to 100.
func (c rgb) lightness() float64 {
	y := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(c[i]) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		y += weight * v
	}
	if y <= 0.008856 {
		return 903.3 * y
	}
	return 116*math.Cbrt(y) - 16
}

// mix is what lies between two colours.
func mix(a, b rgb, part float64) (c rgb) {
	for i := range c {
		c[i] = uint8(math.Round(float64(a[i]) + part*(float64(b[i])-float64(a[i]))))
	}
	return c
}

// theme is the colours of a picture on a light or a dark background.
type theme struct {
	page, ink, muted, faint rgb
	unknown                 rgb
	scale                   []anchor // of loads
	on                      [3]rgb   // of texts on bands
	area, peak, steps       rgb      // of the load panel
}

// anchor fixes a colour of a scale; those between two are mixed. Within a scale
// each is further from the background, and above the target the hue changes too.
type anchor struct {
	class int
	rgb
}

var light = theme{
	page: rgb{255, 255, 255}, ink: rgb{31, 35, 40}, muted: rgb{89, 99, 110}, faint: rgb{228, 232, 236},
	unknown: rgb{213, 217, 221},
	scale: []anchor{
		{0, rgb{233, 242, 247}}, {5, rgb{165, 205, 226}}, {10, rgb{88, 152, 200}},
		{12, rgb{125, 105, 176}}, {14, rgb{166, 52, 112}}, {15, rgb{139, 24, 56}},
	},
	on:   [3]rgb{{52, 66, 78}, {23, 36, 48}, {255, 255, 255}},
	area: rgb{140, 187, 216}, peak: rgb{208, 226, 238}, steps: rgb{52, 61, 70},
}

var dark = theme{
	page: rgb{13, 17, 23}, ink: rgb{230, 237, 243}, muted: rgb{139, 148, 158}, faint: rgb{33, 38, 45},
	unknown: rgb{48, 54, 61},
	scale: []anchor{
		{0, rgb{20, 34, 45}}, {5, rgb{32, 80, 111}}, {10, rgb{58, 141, 194}},
		{12, rgb{150, 145, 228}}, {14, rgb{243, 142, 196}}, {15, rgb{255, 176, 172}},
	},
	on:   [3]rgb{{192, 208, 220}, {8, 18, 28}, {13, 17, 23}},
	area: rgb{44, 103, 139}, peak: rgb{26, 53, 71}, steps: rgb{201, 209, 217},
}

// level is the colour of a class.
func (t theme) level(class int) rgb {
	for i := 1; i < len(t.scale); i++ {
		if a, b := t.scale[i-1], t.scale[i]; class <= b.class {
			return mix(a.rgb, b.rgb, float64(class-a.class)/float64(b.class-a.class))
		}
	}
	return t.scale[len(t.scale)-1].rgb
}

func (t theme) css() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".page{fill:%s}.t{fill:%s}.m{fill:%s}.grid{stroke:%s}.edge,.hatch{stroke:%s}",
		t.page, t.ink, t.muted, t.faint, t.muted)
	band := func(name string, c rgb) { fmt.Fprintf(&b, ".%s{fill:%s;stop-color:%s}", name, c, c) }
	band(unknown, t.unknown)
	for i := range len(bounds) + 1 {
		band(className(i), t.level(i))
	}
	fmt.Fprintf(&b, ".i0{fill:%s}.i1{fill:%s}.i2{fill:%s}", t.on[0], t.on[1], t.on[2])
	fmt.Fprintf(&b, ".area{fill:%s}.peak{fill:%s}.steps{stroke:%s}.roll{stroke:%s}", t.area, t.peak, t.steps, t.page)
	return b.String()
}

// style is the picture's style sheet. There are no variables in it: not every
// viewer knows them.
func style() string {
	return `text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;font-variant-numeric:tabular-nums}` +
		".title{font-size:21px;font-weight:600}.head{font-size:13px}.s{font-size:11px}.id{font-size:11px;pointer-events:none}" +
		".e{text-anchor:end}.c{text-anchor:middle}" +
		".grid,.edge,.steps,.roll,.hatch{fill:none;stroke-width:1}.steps{stroke-width:1.5;stroke-linejoin:round}" +
		".roll{stroke-dasharray:3 3;stroke-width:1.25}.hatch{stroke-width:1.5}" +
		light.css() + "@media(prefers-color-scheme:dark){" + dark.css() + "}"
}
