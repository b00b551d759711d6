package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

type administrator struct{ client *admin.Client }

func administration(connectionString string, trusted *tls.Config, policies ...policy.Policy) administrator {
	chosen := &admin.ClientOptions{}
	chosen.PerCallPolicies = policies
	chosen.Transport = &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	chosen.Retry = policy.RetryOptions{MaxRetries: -1}
	return administrator{must(admin.NewClientFromConnectionString(connectionString, chosen))}
}

func (a administrator) namespace(ctx context.Context) (any, error) {
	found, err := a.client.GetNamespaceProperties(ctx, nil)
	return []string{found.Name, found.SKU}, err
}

// missing: what is not there is nil, and no error.
func (a administrator) missing(ctx context.Context) (any, error) {
	queue, err := a.client.GetQueue(ctx, "go-nowhere", nil)
	if err != nil {
		return nil, err
	}
	subscription, err := a.client.GetSubscription(ctx, "go-topic", "nobody", nil)
	if err != nil {
		return nil, err
	}
	rule, err := a.client.GetRule(ctx, "go-topic", "billing", "none", nil)
	return []bool{queue == nil, subscription == nil, rule == nil}, err
}

func (a administrator) queues(ctx context.Context) (any, error) {
	const name = "go-made"
	asked := &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(5))},
	}
	made, err := a.client.CreateQueue(ctx, name, asked)
	if err != nil {
		return nil, err
	}
	saw := []any{made.QueueName, *made.LockDuration, *made.MaxDeliveryCount}
	made.MaxDeliveryCount = to.Ptr(int32(7))
	updated, err := a.client.UpdateQueue(ctx, name, made.QueueProperties, nil)
	if err != nil {
		return nil, err
	}
	found, err := a.client.GetQueue(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	counts, err := a.client.GetQueueRuntimeProperties(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	saw = append(saw, *updated.MaxDeliveryCount, *found.MaxDeliveryCount, counts.TotalMessageCount)
	names := []string{}
	for pager := a.client.NewListQueuesPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, queue := range page.Queues {
			if strings.HasPrefix(queue.QueueName, name) {
				names = append(names, queue.QueueName)
			}
		}
	}
	_, twice := a.client.CreateQueue(ctx, name, nil)
	if _, err := a.client.DeleteQueue(ctx, name, nil); err != nil {
		return nil, err
	}
	gone, err := a.client.GetQueue(ctx, name, nil)
	return append(saw, names, twice != nil, gone == nil), err
}

func (a administrator) topics(ctx context.Context) (any, error) {
	const name = "go-news"
	asked := &admin.CreateTopicOptions{Properties: &admin.TopicProperties{MaxSizeInMegabytes: to.Ptr(int32(2048))}}
	made, err := a.client.CreateTopic(ctx, name, asked)
	if err != nil {
		return nil, err
	}
	saw := []any{made.TopicName, *made.MaxSizeInMegabytes}
	made.MaxSizeInMegabytes = to.Ptr(int32(3072))
	updated, err := a.client.UpdateTopic(ctx, name, made.TopicProperties, nil)
	if err != nil {
		return nil, err
	}
	counts, err := a.client.GetTopicRuntimeProperties(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	listed := false
	for pager := a.client.NewListTopicsPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, topic := range page.Topics {
			listed = listed || topic.TopicName == name
		}
	}
	if _, err := a.client.DeleteTopic(ctx, name, nil); err != nil {
		return nil, err
	}
	gone, err := a.client.GetTopic(ctx, name, nil)
	return append(saw, *updated.MaxSizeInMegabytes, counts.SubscriptionCount, listed, gone == nil), err
}

func (a administrator) subscriptions(ctx context.Context) (any, error) {
	const topic, name = "go-subscribed", "audit"
	asked := &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{MaxDeliveryCount: to.Ptr(int32(3))},
	}
	made, err := a.client.CreateSubscription(ctx, topic, name, asked)
	if err != nil {
		return nil, err
	}
	saw := []any{made.TopicName, made.SubscriptionName, *made.MaxDeliveryCount}
	made.MaxDeliveryCount = to.Ptr(int32(4))
	updated, err := a.client.UpdateSubscription(ctx, topic, name, made.SubscriptionProperties, nil)
	if err != nil {
		return nil, err
	}
	counts, err := a.client.GetSubscriptionRuntimeProperties(ctx, topic, name, nil)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for pager := a.client.NewListSubscriptionsPager(topic, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, subscription := range page.Subscriptions {
			names = append(names, subscription.SubscriptionName)
		}
	}
	if _, err := a.client.DeleteSubscription(ctx, topic, name, nil); err != nil {
		return nil, err
	}
	gone, err := a.client.GetSubscription(ctx, topic, name, nil)
	return append(saw, *updated.MaxDeliveryCount, counts.TotalMessageCount, names, gone == nil), err
}

func (a administrator) rules(ctx context.Context) (any, error) {
	const topic, subscription = "go-ruled", "s"
	dear := &admin.CreateRuleOptions{
		Name:   to.Ptr("dear"),
		Filter: &admin.SQLFilter{Expression: "price > @least", Parameters: map[string]any{"@least": 10}},
		Action: &admin.SQLAction{Expression: "SET hot = 'yes'"},
	}
	made, err := a.client.CreateRule(ctx, topic, subscription, dear)
	if err != nil {
		return nil, err
	}
	filter := made.Filter.(*admin.SQLFilter)
	saw := []any{made.Name, filter.Expression, filter.Parameters["@least"], made.Action.(*admin.SQLAction).Expression}
	red := &admin.CreateRuleOptions{
		Name:   to.Ptr("red"),
		Filter: &admin.CorrelationFilter{Subject: to.Ptr("red"), ApplicationProperties: map[string]any{"n": int64(1)}},
	}
	if _, err := a.client.CreateRule(ctx, topic, subscription, red); err != nil {
		return nil, err
	}
	got, err := a.client.GetRule(ctx, topic, subscription, "red", nil)
	if err != nil {
		return nil, err
	}
	correlation := got.Filter.(*admin.CorrelationFilter)
	saw = append(saw, *correlation.Subject, correlation.ApplicationProperties["n"])
	got.Filter = &admin.SQLFilter{Expression: "a = 1"}
	updated, err := a.client.UpdateRule(ctx, topic, subscription, got.RuleProperties)
	if err != nil {
		return nil, err
	}
	saw = append(saw, updated.Filter.(*admin.SQLFilter).Expression)
	if _, err := a.client.DeleteRule(ctx, topic, subscription, "red", nil); err != nil {
		return nil, err
	}
	names := []string{}
	for pager := a.client.NewListRulesPager(topic, subscription, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, rule := range page.Rules {
			names = append(names, rule.Name)
		}
	}
	return append(saw, names), nil
}
