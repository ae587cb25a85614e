package rows

import (
	"context"
	"database/sql"
	"errors"
)

// ErrInMemory is the error of every call for a database in memory.
var ErrInMemory = errors.New("the database is in memory, and another one in each connection: give it a file")

// file returns the file of the database, or "" if a server has the database. It fails
// with ErrInMemory if the database has no file.
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

// FileSystem returns the number of a file's file system, as statfs returns it. It fails
// on systems without such numbers.
var FileSystem = fileSystem

// networks maps numbers of FileSystem to the names of network file systems, on which
// other machines may not see the lock of a file.
var networks = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x01021997: "9P", 0x00c36400: "Ceph", 0x5346414f: "AFS",
}

// Network returns the name of the network file system that has the file of the database.
// It returns "" if the file is on another file system, or if the file system is unknown.
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
		return "", nil // not Linux, or the file is not at this path
	}
	return networks[kind], nil
}
