package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"go.etcd.io/bbolt"
)

// errChecked ends a check whose time is over.
var errChecked = errors.New("checked for long enough")

// Check reads all that the file holds, for as long as a limit says at most, and says what is wrong with it, nil where nothing was found. The library's own check is
// no help: it panics over a damaged file where nobody can recover it. What nothing refers to may be damaged unseen, and does no harm.
func (s *Store) Check(limit time.Duration) error {
	if s.short > 0 {
		return fmt.Errorf("%s: %w (its end was cut off: %d bytes are missing)", s.path, errDamaged, s.short)
	}
	until := time.Now().Add(limit)
	err := s.view(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			var last []byte
			return b.ForEach(func(k, v []byte) error {
				switch {
				case time.Now().After(until):
					return errChecked
				case bytes.Compare(k, last) <= 0 && last != nil:
					return fmt.Errorf("%w (%s has keys that are not in order)", errDamaged, name)
				case !(json.Valid(v) && utf8.Valid(v)) && !isRoom(name, k): // the encoder writes no other
					return fmt.Errorf("%w (%s has an entry that cannot be read)", errDamaged, name)
				}
				last = append(last[:0], k...)
				return nil
			})
		})
	})
	if err == nil || errors.Is(err, errChecked) {
		return nil
	}
	return fmt.Errorf("%s: %w", s.path, err)
}

// isRoom says that an entry is the one of Room, which holds nothing: one that ended meanwhile leaves it.
func isRoom(bucket, key []byte) bool { return bytes.Equal(bucket, bucketKV) && string(key) == roomKey }

// missing is how many bytes a file has less than its database says: it was cut off.
func missing(db *bbolt.DB, path string) (short int64) {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	_ = guard(func() error { // what cannot be read is found to be damaged by who reads it
		return db.View(func(tx *bbolt.Tx) error {
			short = max(0, tx.Size()-info.Size())
			return nil
		})
	})
	return short
}
