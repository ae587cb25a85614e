package interop_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

var long = strings.Repeat("receipt ", 1000)

// answers are handlers for the different ways of writing a response.
var answers = map[string]gin.HandlerFunc{
	"JSON":            func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"receipt": "r-1"}) },
	"long JSON":       func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"receipt": long}) },
	"JSON of a 404":   func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusNotFound, gin.H{"error": "no such order"}) },
	"JSON of a 409":   func(c *gin.Context) { c.JSON(http.StatusConflict, gin.H{"error": "not now"}) },
	"JSON of a 500":   func(c *gin.Context) { c.JSON(http.StatusInternalServerError, gin.H{"error": long}) },
	"binary data":     func(c *gin.Context) { c.Data(http.StatusOK, "application/pdf", []byte("%PDF\x00\xff")) },
	"long data":       func(c *gin.Context) { c.Data(http.StatusOK, "text/csv", []byte(long)) },
	"data of a 422":   func(c *gin.Context) { c.Data(http.StatusUnprocessableEntity, "text/plain", []byte("no such card")) },
	"no data":         func(c *gin.Context) { c.Data(http.StatusOK, "text/plain", nil) },
	"a string":        func(c *gin.Context) { c.String(http.StatusOK, "paid %d", 5) },
	"an empty string": func(c *gin.Context) { c.String(http.StatusOK, "") },
	"a redirect":      func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/5") },
	"no answer":       func(*gin.Context) {},
	"a status":        func(c *gin.Context) { c.Status(http.StatusAccepted) },
	"a status of 404": func(c *gin.Context) { c.Status(http.StatusNotFound) },
	"an abort":        func(c *gin.Context) { c.AbortWithStatus(http.StatusNotFound) },
	"no content":      func(c *gin.Context) { c.Status(http.StatusNoContent) },
	"JSON of a 204":   func(c *gin.Context) { c.JSON(http.StatusNoContent, nil) },
	"only a body":     func(c *gin.Context) { _, _ = c.Writer.WriteString("<html>sniffed") },
	"an error of package http": gin.WrapF(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such order", http.StatusNotFound)
	}),
	"content of package http": gin.WrapF(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "orders.csv", time.Unix(1e9, 0), strings.NewReader(long))
	}),
	"a reader of known length": func(c *gin.Context) {
		c.DataFromReader(http.StatusOK, int64(len(long)), "text/plain", strings.NewReader(long), map[string]string{"Content-Language": "en"})
	},
	"a reader of unknown length": func(c *gin.Context) {
		c.DataFromReader(http.StatusOK, -1, "text/plain", strings.NewReader(long), nil)
	},
	"written in pieces": func(c *gin.Context) {
		for i := range 30 {
			fmt.Fprintf(c.Writer, "%d,", i)
			_, _ = c.Writer.WriteString(strings.Repeat("x", 100))
		}
	},
	"very many pieces": func(c *gin.Context) {
		for range 10_000 {
			_, _ = c.Writer.Write([]byte("x"))
		}
	},
	"header before the body": func(c *gin.Context) {
		c.Header("Content-Type", "text/plain")
		c.AbortWithStatus(http.StatusBadRequest)
		_, _ = c.Writer.WriteString("no such card")
	},
	"headers between statuses": func(c *gin.Context) {
		c.Status(http.StatusOK)
		c.Header("Content-Type", "text/csv")
		c.Status(http.StatusCreated)
		c.Header("Location", "/5")
		_, _ = c.Writer.WriteString(long)
	},
	"a length after the status": func(c *gin.Context) {
		c.Status(http.StatusOK)
		c.Header("Content-Length", "5")
		_, _ = c.Writer.WriteString("paid\n")
	},
	"a length that is not kept": func(c *gin.Context) {
		c.Header("Content-Length", "5")
		_, _ = c.Writer.WriteString("pa")
	},
	"headers and status after it": func(c *gin.Context) {
		c.Header("Link", "</1>; rel=a")
		c.String(http.StatusOK, "paid")
		c.Header("Link", "</2>; rel=b")
		c.Header("Content-Language", "de")
		c.Status(http.StatusTeapot)
	},
	"a body that is compressed already": func(c *gin.Context) {
		var b bytes.Buffer
		z := stdgzip.NewWriter(&b)
		_, _ = io.WriteString(z, long)
		_ = z.Close()
		c.Header("Content-Encoding", "gzip")
		c.Data(http.StatusOK, "text/plain", b.Bytes())
	},
	"a body beside an error": func(c *gin.Context) {
		_ = c.Error(errors.New("card declined"))
		c.JSON(http.StatusUnprocessableEntity, gin.H{"error": "card declined"})
	},
	"flushed three times": func(c *gin.Context) {
		c.Header("Content-Type", "text/csv")
		for range 3 {
			_, _ = c.Writer.WriteString(long)
			c.Writer.Flush()
		}
	},
	"a flush before the body": func(c *gin.Context) {
		c.Status(http.StatusCreated)
		c.Writer.Flush()
		_, _ = c.Writer.WriteString(long)
	},
}

// notKept lists the responses that are not stored, with the status of a repeated request.
var notKept = map[string]int{
	"JSON of a 409": http.StatusConflict, "JSON of a 500": http.StatusInternalServerError, "a length that is not kept": http.StatusGone,
}
