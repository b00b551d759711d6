package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// What the SDK's own live tests expect of the service.

// unmanaged: whoever may only listen is refused in the words of the service, and a missing queue is missing.
func (a administrator) unmanaged(ctx context.Context) (any, error) {
	missing, err := a.client.GetQueue(ctx, "go-nowhere", nil)
	if err != nil {
		return nil, err
	}
	_, got := a.client.GetQueue(ctx, "go-settle", nil)
	_, made := a.client.CreateQueue(ctx, "go-never", nil)
	_, deleted := a.client.DeleteQueue(ctx, "go-settle", nil)
	_, subscription := a.client.GetSubscription(ctx, "go-topic", "billing", nil)
	return []bool{
		missing == nil,
		tells(got, "Manage,EntityRead claims required for this operation"),
		tells(made, "Authorization failed for specified action: Manage,EntityWrite"),
		tells(deleted, "Authorization failed for specified action: Manage,EntityDelete."),
		tells(subscription, "401 SubCode=40100: Unauthorized : Unauthorized access for 'GetSubscription'"),
	}, nil
}

func tells(err error, words string) bool {
	return err != nil && strings.Contains(err.Error(), words)
}

// emptyState: a state of no bytes is none.
func emptyState(ctx context.Context, client *azservicebus.Client) (any, error) {
	session, err := client.AcceptSessionForQueue(ctx, "go-sessions", "empty", nil)
	if err != nil {
		return nil, err
	}
	defer session.Close(ctx)
	for _, state := range [][]byte{[]byte("noted"), {}} {
		if err := session.SetSessionState(ctx, state, nil); err != nil {
			return nil, err
		}
	}
	state, err := session.GetSessionState(ctx, nil)
	return state == nil, err
}

// updated: a receiver that an update detaches attaches again by itself.
func (a administrator) updated(ctx context.Context, connectionString string) (any, error) {
	client, err := azservicebus.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close(ctx)
	receiver, err := client.NewReceiverForQueue("go-updated", nil)
	if err != nil {
		return nil, err
	}
	saw := []string{}
	for turn, body := range []string{"before", "after"} {
		if err := send(ctx, client, "go-updated", text(body)); err != nil {
			return nil, err
		}
		var messages []*azservicebus.ReceivedMessage
		for len(messages) == 0 { // none come from the link that was detached
			if messages, err = receiver.ReceiveMessages(ctx, 1, nil); err != nil {
				return nil, err
			}
		}
		if err := receiver.CompleteMessage(ctx, messages[0], nil); err != nil {
			return nil, err
		}
		saw = append(saw, bodies(messages)...)
		queue, err := a.client.GetQueue(ctx, "go-updated", nil)
		if err != nil {
			return nil, err
		}
		queue.MaxDeliveryCount = to.Ptr(int32(11 + turn))
		if _, err := a.client.UpdateQueue(ctx, "go-updated", queue.QueueProperties, nil); err != nil {
			return nil, err
		}
	}
	return saw, nil
}

// described: what an entity says of its use and of its forwarding, and how it refuses a change.
func (a administrator) described(ctx context.Context) (any, error) {
	made, err := a.client.CreateQueue(ctx, "go-described", nil)
	if err != nil {
		return nil, err
	}
	made.ForwardTo = to.Ptr("SB://LocalHost/go-Settle")
	if _, err := a.client.UpdateQueue(ctx, "go-described", made.QueueProperties, nil); err != nil {
		return nil, err
	}
	found, err := a.client.GetQueue(ctx, "go-described", nil)
	if err != nil {
		return nil, err
	}
	queue, err := a.client.GetQueueRuntimeProperties(ctx, "go-described", nil)
	if err != nil {
		return nil, err
	}
	if _, err := a.client.CreateSubscription(ctx, "go-topic", "described", nil); err != nil {
		return nil, err
	}
	subscription, err := a.client.GetSubscriptionRuntimeProperties(ctx, "go-topic", "described", nil)
	if err != nil {
		return nil, err
	}
	made.RequiresSession = to.Ptr(true)
	_, refused := a.client.UpdateQueue(ctx, "go-described", made.QueueProperties, nil)
	return []any{
		*found.ForwardTo,
		queue.AccessedAt.Year(),
		subscription.AccessedAt.Equal(subscription.CreatedAt),
		tells(refused, "The value for the RequiresSession property of an existing Queue cannot be changed"),
		begins(refused),
	}, nil
}

// begins: the first characters of the body of an error.
func begins(err error) string {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		return "no answer"
	}
	body, err := runtime.Payload(answer.RawResponse)
	if err != nil {
		return err.Error()
	}
	return string(body[:min(len(body), 13)])
}

// versionless takes the version from each request.
type versionless struct{ counted *int }

func (v versionless) Do(request *policy.Request) (*http.Response, error) {
	query := request.Raw().URL.Query()
	query.Del("api-version")
	request.Raw().URL.RawQuery = query.Encode()
	*v.counted++
	return request.Next()
}

// premium: what only a Premium namespace has, and what it refuses.
func (a administrator) premium(ctx context.Context) (any, error) {
	found, err := a.client.GetNamespaceProperties(ctx, nil)
	if err != nil {
		return nil, err
	}
	small := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{MaxMessageSizeInKilobytes: to.Ptr(int64(1023))}}
	_, refused := a.client.CreateQueue(ctx, "go-small", small)
	small.Properties.MaxMessageSizeInKilobytes = to.Ptr(int64(102400))
	_, err = a.client.CreateQueue(ctx, "go-large", small)
	return []any{found.SKU, *found.MessagingUnits, tells(refused, "between 1024 and 102400")}, err
}

// failing: a filter that fails on a message dead-letters it.
func (a administrator) failing(ctx context.Context, client *azservicebus.Client) (any, error) {
	if _, err := a.client.CreateSubscription(ctx, "go-failing", "s", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{EnableDeadLetteringOnFilterEvaluationExceptions: to.Ptr(true)},
	}); err != nil {
		return nil, err
	}
	rule := &admin.CreateRuleOptions{Name: to.Ptr("odd"), Filter: &admin.SQLFilter{Expression: "a / b = 1"}}
	if _, err := a.client.CreateRule(ctx, "go-failing", "s", rule); err != nil {
		return nil, err
	}
	message := text("broken")
	message.ApplicationProperties = map[string]any{"a": int64(1), "b": int64(0)}
	if err := send(ctx, client, "go-failing", message); err != nil {
		return nil, err
	}
	dead := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	receiver, err := client.NewReceiverForSubscription("go-failing", "s", dead)
	if err != nil {
		return nil, err
	}
	found, err := one(ctx, receiver)
	if err != nil {
		return nil, err
	}
	return []string{string(found.Body), *found.DeadLetterReason}, nil
}
