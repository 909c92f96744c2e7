package trainer

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errForeign says that what was fetched is of another topic of the same name.
var errForeign = errors.New("the topic was deleted or created again")

// knowTopic makes sure that this worker knows which topic the job's state belongs to, before it reads any.
func (w *worker) knowTopic() error {
	w.mu.Lock()
	known := w.topicID != "" || w.findTopic == nil
	w.mu.Unlock()
	if known {
		return nil
	}
	id, err := w.findTopic()
	if err != nil {
		return fmt.Errorf("find out which topic the job's state belongs to: %w", err)
	}
	w.mu.Lock()
	w.topicID = id
	w.mu.Unlock()
	return nil
}

// foreign says that a fetch is of another topic than the job's, by id (rule 17): a client that started after a topic was created again knows only the new
// one, and would read it on from the old one's offsets. A broker that tells no ids (before Kafka 3.1) is taken at its word.
func (w *worker) foreign(f kgo.FetchTopic) error {
	w.mu.Lock()
	pinned := w.topicID
	w.mu.Unlock()
	var none kadm.TopicID
	id := kadm.TopicID(f.TopicID)
	if f.Topic != w.topic || pinned == "" || pinned == none.String() || id == none || id.String() == pinned {
		return nil
	}
	return fmt.Errorf("%w: topic %q has id %s, the job's state belongs to %s", errForeign, f.Topic, id, pinned)
}
