//go:build !windows

package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
)

// stackPath is where the local cloud says what runs, for tools on this machine.
const stackPath = "/dev/stack"

// description is what a tool needs to reach the parts of the stack: the endpoints
// of the APIs, and what CloudFormation's ListStackResources says of a deployed one.
type description struct {
	Name        string            `json:"name"`
	Template    string            `json:"template"` // its file, which tells apart the clouds of two clones
	Region      string            `json:"region"`
	WebSocket   string            `json:"websocket"`   // where devices connect
	DynamoDB    string            `json:"dynamodb"`    // the endpoint of DynamoDB and its streams
	AccessKeyID string            `json:"accessKeyId"` // what DynamoDB is called with; the secret is not told
	Endpoint    string            `json:"endpoint"`    // that of Lambda and SQS
	Resources   map[string]string `json:"resources"`   // tables, functions and queues: physical ids by logical ids
}

func (c *cloud) describe() description {
	file, err := filepath.Abs(c.stack.File)
	if err != nil {
		file = c.stack.File
	}
	d := description{
		Name: c.stack.Name, Template: file, Region: c.stack.Region, WebSocket: c.socket, DynamoDB: c.database, AccessKeyID: c.awsEnv()["AWS_ACCESS_KEY_ID"],
		Endpoint: c.base, Resources: map[string]string{},
	}
	for _, t := range c.stack.Tables {
		d.Resources[t.LogicalID] = t.Name
	}
	for _, f := range c.stack.Functions {
		d.Resources[f.LogicalID] = f.Name
	}
	for _, q := range c.stack.Queues {
		d.Resources[q.LogicalID] = q.URL
	}
	return d
}

func (c *cloud) describeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+stackPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(c.describe()) // the caller went away
	})
	return mux
}
