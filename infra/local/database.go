//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/template"
)

// startDynamoDB starts the engine, or uses the one named, and makes the tables.
func (c *cloud) startDynamoDB(ctx context.Context) error {
	c.dynamoDB, c.database, c.elsewhere = c.databaseAt.URL(), c.databaseAt.URL(), !c.databaseAt.IsZero()
	if c.elsewhere {
		if err := checkEndpoint(ctx, c.dynamoDB); err != nil {
			return err
		}
	} else {
		binary, err := dynamo.Find(ctx, dynamo.Options{Progress: func(s string) { c.out.step("%s", s) }})
		if err != nil {
			return err
		}
		engine := dynamo.Config{
			Binary: binary,
			Reaper: c.reaper,
			Output: func(line string) { c.out.line("dynamodb", line) },

			TimeToLive: c.expires(),
		}
		if c.dataDir != "" {
			engine.DataFile = filepath.Join(c.dir, "dynamodb.sqlite")
		}
		e, err := dynamo.Start(ctx, engine)
		if errors.Is(err, dynamo.ErrDamaged) {
			return fmt.Errorf("the database in %s is damaged: %w\n"+
				"put a copy of the folder back, or begin anew without its data: move the folder away, or name another with -data", c.dataDir, err)
		}
		if err != nil {
			return err
		}
		c.onClose(e.Stop)
		go func() {
			<-e.Done()
			if err := e.Err(); err != nil {
				c.fail(err)
			}
		}()
		c.dynamoDB, c.database, c.engine = e.Endpoint(), c.base, e
	}
	db := dynamodb.New(dynamodb.Options{
		Region:       c.stack.Region,
		BaseEndpoint: &c.dynamoDB,
		Credentials:  c.credentials(),
	})
	if err := dynamo.CreateTables(ctx, db, c.stack.Tables); err != nil {
		return err
	}
	c.out.step("%d tables at %s", len(c.stack.Tables), c.database)
	return nil
}

// expires reports whether items of a table have a time to live.
func (c *cloud) expires() bool {
	return slices.ContainsFunc(c.stack.Tables, func(t *template.Table) bool { return t.TTLAttribute != "" })
}

// startTimeToLive deletes what has expired, as DynamoDB does within some days: at once
// what has while nothing ran, and then about every minute.
func (c *cloud) startTimeToLive(ctx context.Context) {
	if c.engine == nil || !c.expires() {
		return
	}
	log := c.out.logger("dynamodb")
	c.beside(ctx)(func(ctx context.Context) {
		c.engine.SweepOften(ctx, func(deleted int, err error) {
			switch {
			case err != nil:
				log.Warn("items that have expired stay for now", "error", err)
			case deleted > 0:
				log.Info("items have expired and are deleted", "items", deleted)
				c.wakeStreams()
			}
		})
	})
}

// endpointTimeout is how long a DynamoDB that the user named may take to answer.
const endpointTimeout = 5 * time.Second

// checkEndpoint asks for any answer at all, so that a wrong address is not hidden
// behind minutes of the SDK's retries.
func checkEndpoint(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return fmt.Errorf("-dynamodb-endpoint %s: %w", endpoint, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("-dynamodb-endpoint %s: no DynamoDB answers there: %w", endpoint, err)
	}
	_ = response.Body.Close()
	return nil
}

// likeness is how the streams of our engine look.
func (c *cloud) likeness() dynamo.Likeness {
	return dynamo.Likeness{Region: c.stack.Region, Account: c.stack.AccountID}
}
