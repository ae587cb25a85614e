package claims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/store"
)

func TestClassless(t *testing.T) {
	t.Parallel()
	classes := []error{store.ErrBusy, store.ErrLost, store.ErrUnavailable, store.ErrUnsupported, store.ErrInvalid}
	for _, class := range append(classes, &store.BusyError{Key: "k"}) {
		err := claims.Classless(fmt.Errorf("left: %w", errors.Join(context.Canceled, class)))
		for _, other := range classes {
			if errors.Is(err, other) {
				t.Errorf("%v matches %v", err, other)
			}
		}
		if errors.As(err, new(*store.BusyError)) || !errors.Is(err, context.Canceled) || err.Error() == "" {
			t.Errorf("got %v, want what matches %v and no *BusyError", err, context.Canceled)
		}
	}
	own := errors.New("own")
	if claims.Classless(own) != own || claims.Classless(nil) != nil {
		t.Error("an error without a class is another one")
	}
}
