package main

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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
