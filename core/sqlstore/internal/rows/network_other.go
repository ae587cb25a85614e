//go:build !linux

package rows

import "errors"

func fileSystem(string) (kind uint32, err error) { return 0, errors.ErrUnsupported }
