package grpcmw_test

import (
	"strings"
	"testing"

	"github.com/lockkit/lockkit/grpcmw"
)

func TestKeepMetadata_Names(t *testing.T) {
	t.Parallel()
	t.Run("names that are refused", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{
			"", "a b", "é", ":path", "grpc-status", "Grpc-Encoding", "content-type", "te", "connection", "idempotent-replayed",
			"idempotency-key", "lockkit-owner", "set-cookie", "authorization", "date", "proxy-status", "grpcgateway-idempotency-key",
		} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, "grpcmw: KeepMetadata: ") {
						t.Errorf("%q: got %q, want a panic", name, text)
					}
				}()
				grpcmw.KeepMetadata("x-fine", name)
			}()
		}
	})
	t.Run("no names", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() == nil {
				t.Error("got no panic")
			}
		}()
		grpcmw.KeepMetadata()
	})
}
