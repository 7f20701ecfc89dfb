package queue

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Defaults and limits of ReceiveMessage (SQS API reference).
const (
	defaultHide = 30        // seconds
	maxHide     = 12 * 3600 // seconds
	maxReceive  = 10
)

// maxRequest bounds a request, in bytes.
const maxRequest = 1 << 20

// Handler serves the SQS API (its JSON protocol) for queues by their URLs.
func Handler(queues map[string]*Queue) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if service != "AmazonSQS" {
			http.Error(w, "this is where the APIs of SQS and DynamoDB are: a request needs the header X-Amz-Target", http.StatusBadRequest)
			return
		}
		var request struct {
			QueueURL            string `json:"QueueUrl"`
			MaxNumberOfMessages *int
			VisibilityTimeout   *int // seconds
			ReceiptHandle       string
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request); err != nil {
			refuse(w, "InvalidAddress", "the request is not JSON: "+err.Error())
			return
		}
		q := queues[request.QueueURL]
		if q == nil {
			refuse(w, "QueueDoesNotExist", "there is no queue "+request.QueueURL)
			return
		}
		switch action {
		case "ReceiveMessage":
			n, hide := 1, defaultHide
			if request.MaxNumberOfMessages != nil {
				n = *request.MaxNumberOfMessages
			}
			if request.VisibilityTimeout != nil {
				hide = *request.VisibilityTimeout
			}
			if n < 1 || n > maxReceive || hide < 0 || hide > maxHide {
				refuse(w, "InvalidParameterValue", "MaxNumberOfMessages is from 1 to 10 and VisibilityTimeout from 0 to 43200")
				return
			}
			messages, err := q.receive(n, time.Duration(hide)*time.Second)
			answer(w, map[string]any{"Messages": messages}, err)
		case "ChangeMessageVisibility":
			if request.VisibilityTimeout == nil || *request.VisibilityTimeout < 0 || *request.VisibilityTimeout > maxHide {
				refuse(w, "InvalidParameterValue", "VisibilityTimeout is missing, or not from 0 to 43200")
				return
			}
			q.hide(request.ReceiptHandle, time.Duration(*request.VisibilityTimeout)*time.Second)
			answer(w, struct{}{}, nil)
		case "DeleteMessage":
			answer(w, struct{}{}, q.remove(request.ReceiptHandle))
		default:
			refuse(w, "UnsupportedOperation", "the local cloud has ReceiveMessage, ChangeMessageVisibility and DeleteMessage, not "+action)
		}
	})
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(v) // the caller went away
}

func refuse(w http.ResponseWriter, name, why string) { fail(w, http.StatusBadRequest, name, why) }

func fail(w http.ResponseWriter, status int, name, why string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + name, "message": why}) // the caller went away
}
