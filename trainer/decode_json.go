package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxJSONDepth bounds the nesting of values that are skipped.
const maxJSONDepth = 1000

// json reads one JSON object (RFC 8259) in one pass, without building a tree: fields that are not named are checked and skipped. Of a
// field that occurs twice, the last value counts.
func (d *Decoder) json(value []byte, ex *Example) error {
	s := jsonScanner{b: value}
	s.space()
	if !s.take('{') {
		return s.fail("a record must be a JSON object")
	}
	s.space()
	if s.take('}') {
		return s.end()
	}
	for {
		s.space()
		key, err := s.str()
		if err != nil {
			return err
		}
		s.space()
		if !s.take(':') {
			return s.fail("want ':' after a field's name")
		}
		s.space()
		if sl, ok := d.slots[string(key)]; ok {
			err = d.jsonField(&s, sl, ex)
		} else {
			err = s.skip()
		}
		if err != nil {
			return err
		}
		s.space()
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return s.end()
		}
		return s.fail("want ',' or '}' after a field")
	}
}

var jsonTrue, jsonFalse = []byte("true"), []byte("false")

func (d *Decoder) jsonField(s *jsonScanner, sl *slot, ex *Example) error {
	switch c := s.peek(); {
	case c == '"':
		text, err := s.str()
		if err != nil {
			return err
		}
		return d.set(sl, scalar{text: text}, ex)
	case c == '-' || c >= '0' && c <= '9':
		text, err := s.number()
		if err != nil {
			return err
		}
		v := scalar{text: text}
		if sl.label || sl.dense >= 0 {
			if v.number, err = strconv.ParseFloat(string(text), 64); err != nil {
				return fmt.Errorf("field %q: number %s is out of range", sl.name, quoted(text))
			}
			v.numeric = true
		}
		return d.set(sl, v, ex)
	case s.word("true"):
		return d.set(sl, scalar{text: jsonTrue, number: 1, numeric: true}, ex)
	case s.word("false"):
		return d.set(sl, scalar{text: jsonFalse, numeric: true}, ex)
	case s.word("null"):
		return nil
	case c == '[' || c == '{':
		return fmt.Errorf("field %q is a list or an object; want one value", sl.name)
	}
	return s.fail("want a value")
}

// jsonScanner walks over JSON text. Positions in errors are byte offsets from 0.
type jsonScanner struct {
	b []byte
	i int
}

func (s *jsonScanner) fail(what string) error {
	if s.i >= len(s.b) {
		return errors.New("record ends too early: " + what)
	}
	return fmt.Errorf("byte %d: %s, found %q", s.i, what, s.b[s.i])
}

func (s *jsonScanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (s *jsonScanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *jsonScanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *jsonScanner) word(w string) bool {
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *jsonScanner) end() error {
	s.space()
	if s.i < len(s.b) {
		return s.fail("want nothing after the object")
	}
	return nil
}

// str reads a string. Without escapes the result is part of the input.
func (s *jsonScanner) str() ([]byte, error) {
	if !s.take('"') {
		return nil, s.fail("want a string")
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, s.fail("a control character inside a string")
		}
		s.i++
	}
	return nil, s.fail("want '\"'")
}

// escaped finishes a string that holds a backslash, the slow way.
func (s *jsonScanner) escaped(start int) ([]byte, error) {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '\\':
			s.i++ // whatever follows, a quote included, belongs to the string
		case '"':
			s.i++
			var out string
			if err := json.Unmarshal(s.b[start-1:s.i], &out); err != nil {
				return nil, fmt.Errorf("byte %d: %w", start-1, err)
			}
			return []byte(out), nil
		}
		s.i++
	}
	s.i = len(s.b)
	return nil, s.fail("want '\"'")
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *jsonScanner) number() ([]byte, error) {
	start := s.i
	s.take('-')
	if !s.take('0') && s.digits() == 0 {
		return nil, s.fail("want a digit")
	}
	if s.take('.') && s.digits() == 0 {
		return nil, s.fail("want a digit after '.'")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if s.digits() == 0 {
			return nil, s.fail("want a digit in the exponent")
		}
	}
	return s.b[start:s.i], nil
}

func (s *jsonScanner) digits() (n int) {
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
		n++
	}
	return n
}

// skip passes over one value of any kind, checking its form.
func (s *jsonScanner) skip() error { return s.skipDeep(0) }

func (s *jsonScanner) skipDeep(depth int) error {
	if depth > maxJSONDepth {
		return s.fail("the record is nested too deeply")
	}
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{' || c == '[':
		return s.skipMany(depth)
	case c == '-' || c >= '0' && c <= '9':
		_, err := s.number()
		return err
	case s.word("true"), s.word("false"), s.word("null"):
		return nil
	}
	return s.fail("want a value")
}

// skipMany passes over an object or a list.
func (s *jsonScanner) skipMany(depth int) error {
	object := s.take('{')
	closer := byte('}')
	if !object {
		s.take('[')
		closer = ']'
	}
	s.space()
	if s.take(closer) {
		return nil
	}
	for {
		s.space()
		if object {
			if _, err := s.str(); err != nil {
				return err
			}
			s.space()
			if !s.take(':') {
				return s.fail("want ':' after a field's name")
			}
			s.space()
		}
		if err := s.skipDeep(depth + 1); err != nil {
			return err
		}
		s.space()
		if s.take(closer) {
			return nil
		}
		if !s.take(',') {
			return s.fail("want ',' or the end of a list or an object")
		}
	}
}
