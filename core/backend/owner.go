package backend

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Owner says whose the workloads under a job's name are: two jobs of one name are told apart by it. An empty one says nothing, and is refused nowhere.
type Owner struct {
	ID    string `json:"id"`    // the same for as long as the job goes on from its checkpoint; no secret
	Words string `json:"words"` // who that is, for people
}

// Refuse gives a Conflict where the workloads of a job's name are has's, and o is another; otherwise nil.
func (o Owner) Refuse(job string, has Owner) *Error {
	if o.ID == "" || has.ID == "" || o.ID == has.ID {
		return nil
	}
	return Errorf(Conflict, "the name %q is taken on this cluster, by another job: %s. Give this job another name, or stop that one, which frees the name; "+
		"where nobody can stop it any more, kale stop -force -take-over ends what runs under the name, whoever's it is", job, has.Words)
}

// CheckFile is Refuse for a backend that keeps owners in files: path is what TakeFile wrote. A name of which nothing is left is free. remains tells whether
// workloads of the job are left, and is asked only where it matters.
func (o Owner) CheckFile(path, job string, remains func() (bool, error)) error {
	has, err := readOwner(path, job)
	if err != nil || o.ID == "" {
		return err
	}
	refusal := o.Refuse(job, has)
	if refusal == nil {
		return nil
	}
	left, err := remains()
	if err == nil && left {
		return refusal
	}
	return err
}

// TakeFile is CheckFile, and makes a name that is free the owner's. Who calls it has locked out others.
func (o Owner) TakeFile(path, job string, remains func() (bool, error)) error {
	if err := o.CheckFile(path, job, remains); err != nil || o.ID == "" {
		return err
	}
	if has, err := readOwner(path, job); err != nil || has.ID == o.ID {
		return err
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = WriteJSON(path, o)
	}
	if err != nil {
		return Errorf(FileCode(err), "note whose the name %q is: %w", job, err)
	}
	return nil
}

func readOwner(path, job string) (has Owner, err error) {
	err = ReadJSON(path, &has)
	var unreadable *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Owner{}, nil
	case errors.As(err, &unreadable):
		return has, Errorf(FileCode(err), "see whose the name %q is: %w", job, err)
	case err != nil:
		return has, Errorf(Blocked, "see whose the name %q is: %w; remove that file, and the name is whose job starts next", job, err)
	}
	return has, nil
}
