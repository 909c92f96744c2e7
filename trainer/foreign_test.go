package trainer

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Rule 17 [1]: what a topic of the same name, but with another id, has to offer is not read.
func TestRule17ForeignTopicIsRefused(t *testing.T) {
	ours, other, none := kadm.TopicID{1}, kadm.TopicID{2}, kadm.TopicID{}
	for _, c := range []struct {
		name   string
		pinned string
		topic  string
		id     kadm.TopicID
		want   bool
	}{
		{"the same topic", ours.String(), "clicks", ours, false},
		{"another one of that name", ours.String(), "clicks", other, true},
		{"a broker that tells no ids", ours.String(), "clicks", none, false},
		{"a job that was made with such a broker", none.String(), "clicks", ours, false},
		{"a job of which it is not known", "", "clicks", ours, false},
		{"the client's own word", ours.String(), "", none, false},
	} {
		w := &worker{topic: "clicks", topicID: c.pinned}
		err := w.foreign(kgo.FetchTopic{Topic: c.topic, TopicID: c.id})
		if errors.Is(err, errForeign) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A worker that cannot find out which topic is the job's reads nothing, and asks again; one that knows asks no more.
func TestRule17TopicIsKnownBeforeItIsRead(t *testing.T) {
	asked := 0
	err := errors.New("the store is away")
	w := &worker{topic: "clicks", findTopic: func() (string, error) { asked++; return "id", err }}
	if got := w.knowTopic(); !errors.Is(got, err) || w.topicID != "" {
		t.Fatalf("with an unreadable store: %v, id %q", got, w.topicID)
	}
	err = nil
	for range 2 {
		if got := w.knowTopic(); got != nil || w.topicID != "id" {
			t.Fatalf("with a readable store: %v, id %q", got, w.topicID)
		}
	}
	if asked != 2 {
		t.Errorf("the store was asked %d times, want 2", asked)
	}
}
