package rows

import (
	"context"
	"database/sql"
	"errors"
)

// ErrInMemory is the error of every call for a database in memory.
var ErrInMemory = errors.New("the database is in memory, and another one in each connection: give it a file")

// file returns the file of the database, or "" if a server has the database. It fails with
// ErrInMemory if there is no file.
func (p *Place) file(ctx context.Context, c *sql.Conn) (string, error) {
	st := p.Dialect.File()
	if st.Text == "" {
		return "", nil
	}
	var number int
	var name, file sql.NullString
	err := c.QueryRowContext(ctx, st.Text).Scan(&number, &name, &file)
	if err == nil && file.String == "" {
		err = ErrInMemory
	}
	return file.String, err
}

// FileSystem returns the kind of the file system that a file is on, by the number that
// statfs has for it. It fails where there is no such number.
var FileSystem = fileSystem

// networks are the kinds of file systems whose locks are those of one machine, or may be.
var networks = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x01021997: "9P", 0x00c36400: "Ceph", 0x5346414f: "AFS",
}

// Network returns the name of the network file system that the file of the database is
// on, or "" if it is on none, or that is not known.
func (p *Place) Network(ctx context.Context) (string, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	file, err := p.file(ctx, c)
	if err != nil || file == "" {
		return "", err
	}
	kind, err := FileSystem(file)
	if err != nil {
		return "", nil // of another system than Linux, or the file is not where the driver says
	}
	return networks[kind], nil
}
