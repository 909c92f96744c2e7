package main

import (
	"context"
	"fmt"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core/traffic"
)

// theTopic asks the brokers about a topic that must be there; o says how cl reaches them.
func (a *app) theTopic(ctx context.Context, cl *traffic.Client, o traffic.ClientOptions) (traffic.Info, error) {
	answered := a.awaitBrokers(o.Brokers, traffic.RequestTimeout)
	info, err := cl.Topic(ctx)
	answered()
	switch {
	case err != nil:
		return info, unanswered(err)
	case !info.Exists:
		return info, fmt.Errorf("topic %q does not exist%s", o.Topic, topicsThere(doctor.TopicNames(ctx, o.Brokers, o.Opts)))
	}
	return info, nil
}

// reached is the error of a question to brokers, with what helps where that is that none was reached or has answered.
func reached(err error) error {
	if traffic.Unreached(err) {
		return unanswered(err)
	}
	return err
}

// unanswered is the error of a question that brokers have not answered, with what helps.
func unanswered(err error) error {
	return fmt.Errorf("%w; are the addresses right, and does a broker run there?", err)
}

func topicsThere(names []string) string {
	if len(names) == 0 {
		return ": the brokers have none that can be seen from here"
	}
	more := ""
	if len(names) > 12 {
		names, more = names[:12], " and others"
	}
	return fmt.Sprintf("; the brokers have: %s%s", listed(names), more)
}
