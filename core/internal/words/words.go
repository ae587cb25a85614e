// Package words writes durations in words, for the texts of errors.
package words

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration returns d in words, such as "24 days", "700 hours", "1 minute 30 s", "1.5 s"
// and "50 ms". Days are used only for two days and more.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64)) // the minimum has no positive counterpart
	}
	if d >= 2*day && d%day == 0 {
		return count(d/day, "day")
	}
	var parts []string
	if d >= time.Hour {
		parts = append(parts, count(d/time.Hour, "hour"))
		d %= time.Hour
	}
	if d >= time.Minute {
		parts = append(parts, count(d/time.Minute, "minute"))
		d %= time.Minute
	}
	if d != 0 || parts == nil {
		text := d.String()
		unit := strings.IndexFunc(text, func(r rune) bool { return r >= 'a' })
		parts = append(parts, text[:unit]+" "+text[unit:])
	}
	return strings.Join(parts, " ")
}

func count(n time.Duration, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatInt(int64(n), 10) + " " + unit
}
