package testserver

import "time"

// AskMySQL runs statements on the server at addr, which may be a proxy.
func AskMySQL(addr, sql string) ([]string, error) {
	return askMySQL(addr, "mysql", time.Minute, sql)
}

// Draw exports Impairment.draw.
func (i Impairment) Draw(toll *Toll, chance func() float64) (lag time.Duration, drop bool) {
	return i.draw(toll, chance)
}

// AskPostgres runs statements on the server at addr, which may be a proxy.
func AskPostgres(addr, sql string) ([]string, error) {
	return askPostgres(addr, "postgres", time.Minute, sql)
}
