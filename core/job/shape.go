package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
)

// Shape is what the trained state depends on: a checkpoint of one shape cannot be continued with another. Its JSON form
// is kept beside the checkpoint, so that a refusal can name what changed.
type Shape struct {
	Topic        string   `json:"stream.topic"`
	Label        string   `json:"features.label"`
	Sparse       []string `json:"features.sparse"` // their order is the order of embeddings
	Dense        []string `json:"features.dense"`  // their order is the order of the input's columns
	Kind         string   `json:"model.kind"`
	EmbeddingDim int      `json:"model.embedding_dim"`
	Hidden       []int    `json:"model.hidden"`
	Optimiser    string   `json:"model.optimiser"` // its kind; rates may change from run to run
	Tablets      int      `json:"model.tablets"`
}

// Shape returns the job's shape. What the model's kind does not use is left out, so that changing it changes nothing.
func (j *Job) Shape() Shape {
	if j.Model.Kind == ModelCounting {
		return Shape{Topic: j.Stream.Topic, Kind: j.Model.Kind, Tablets: j.Model.Tablets}
	}
	s := Shape{
		Topic: j.Stream.Topic, Label: j.Features.Label, Sparse: j.Features.Sparse, Dense: j.Features.Dense,
		Kind: j.Model.Kind, Optimiser: j.Model.Optimiser.Kind, Tablets: j.Model.Tablets,
	}
	if j.Model.Kind != ModelLR {
		s.EmbeddingDim, s.Hidden = j.Model.EmbeddingDim, j.Model.Hidden
	}
	return s
}

// Fingerprint identifies the shape: 16 hexadecimal digits, the same in every run and version that knows these fields.
func (j *Job) Fingerprint() string {
	sum := sha256.Sum256([]byte(encode(j.Shape())))
	return hex.EncodeToString(sum[:8])
}

func encode(v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic("job: shape: " + err.Error()) // Strings and integers always have a JSON form.
	}
	return string(encoded)
}

// Changes names what differs from the shape of a checkpoint, by its path in the job file:
// "model.hidden was [32,16] and is [64,32]". It is empty when the checkpoint can be continued.
func (s Shape) Changes(checkpoint Shape) []string {
	var changes []string
	now, then := reflect.ValueOf(s), reflect.ValueOf(checkpoint)
	for i := range now.NumField() {
		if s.Kind != checkpoint.Kind && (now.Field(i).IsZero() || then.Field(i).IsZero()) {
			continue // one of the kinds does not use it
		}
		a, b := now.Field(i).Interface(), then.Field(i).Interface()
		if was, is := encode(b), encode(a); was != is {
			changes = append(changes, fmt.Sprintf("%s was %s and is %s", now.Type().Field(i).Tag.Get("json"), was, is))
		}
	}
	return changes
}
