package httpmw_test

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// TestMain runs at least 4 tests at once, because most wait for time or for a server.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
	gin.SetMode(gin.TestMode)
	gin.DefaultErrorWriter = io.Discard
	logging.Disable() // Redis clients log every server that a test has stopped
	if what := os.Getenv(crashEnv); what != "" {
		dieServing(what)
		return
	}
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// serveForParent serves on a free port until standard input ends, and prints the
// address on standard output.
func serveForParent(h http.Handler) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, h) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
