package once_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestSmoke(t *testing.T) {
	l, _ := core.New(memstore.New())
	o, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		out, err := o.Do(t.Context(), once.Call{Name: "a", Key: "1"}, func(ctx context.Context) (once.Answer, error) {
			n, _ := once.AttemptFromContext(ctx)
			if n != 1 {
				t.Error(n)
			}
			return once.Answer{Value: []byte("x")}, nil
		})
		t.Log(i, out, err)
	}
}
