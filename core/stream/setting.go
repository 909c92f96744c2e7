package stream

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// honoured are the settings of a topic that the embedded broker honours, and what is wrong with a value, "" where nothing is.
var honoured = map[string]func(value string) (wrong string){
	"cleanup.policy":         oneOf("delete", "compact", "compact,delete", "delete,compact"),
	"max.message.bytes":      atLeast(0),
	"message.timestamp.type": oneOf("CreateTime", "LogAppendTime"),
	"retention.bytes":        atLeast(-1),
	"retention.ms":           atLeast(-1),
}

// CheckSetting refuses a setting of a topic that the embedded broker would not honour, and a value that means nothing.
func CheckSetting(key, value string) error {
	wrong, known := honoured[key]
	if !known {
		return fmt.Errorf("this broker has no setting %q: it knows %s", key, strings.Join(slices.Sorted(maps.Keys(honoured)), ", "))
	}
	if why := wrong(value); why != "" {
		return fmt.Errorf("%s=%s: %s", key, value, why)
	}
	return nil
}

func atLeast(least int64) func(string) string {
	return func(value string) string {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < least {
			return fmt.Sprintf("want a whole number, %d or more", least)
		}
		return ""
	}
}

func oneOf(values ...string) func(string) string {
	return func(value string) string {
		if !slices.Contains(values, value) {
			return "want " + strings.Join(values, " or ")
		}
		return ""
	}
}
