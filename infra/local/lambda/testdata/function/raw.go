package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// runRaw speaks the Runtime API in ways that aws-lambda-go does not.
func runRaw(scenario string) {
	switch scenario {
	case "init-error":
		post("init/error", `{"errorType":"Mine.NoConfig","errorMessage":"no config"}`, "Mine.NoConfig")
		time.Sleep(time.Hour)
	case "init-error-exit":
		post("init/error", "", "Mine.Empty")
		os.Exit(1)
	case "protocol":
		breakTheRules()
	case "error-header":
		for {
			id, _ := next()
			post("invocation/"+id+"/error", "not JSON", "Mine.Odd")
		}
	case "linger": // ends some time after its answer without asking for more
		id, _ := next()
		post("invocation/"+id+"/response", `"lingering"`, "")
		time.Sleep(400 * time.Millisecond)
	case "slow-return": // takes its time between an answer and the next request
		for {
			id, _ := next()
			post("invocation/"+id+"/response", fmt.Sprint(os.Getpid()), "")
			time.Sleep(400 * time.Millisecond)
		}
	case "lose-poll":
		losePoll()
	}
}

// breakTheRules makes every wrong request during a first invocation, and
// answers the second one with the statuses.
func breakTheRules() {
	var statuses []int
	note := func(status int) { statuses = append(statuses, status) }
	id, _ := next()
	_, status := next()
	note(status)
	note(post("invocation/other/response", "1", ""))
	note(post("init/error", "{}", ""))
	note(post("invocation/"+id+"/response", `"first"`, ""))
	note(post("invocation/"+id+"/response", `"second"`, ""))
	note(post("invocation/"+id+"/error", "{}", ""))
	note(post("unheard-of", "", ""))

	id, status = next()
	note(status)
	body, err := json.Marshal(statuses)
	check(err)
	post("invocation/"+id+"/response", string(body), "")
	next()
}

// losePoll, as the first process of its function, gives up its request for work
// and ends when the test has seen that. Later processes just answer.
func losePoll() {
	marker := os.Getenv("MARKER")
	if _, err := os.Stat(marker); os.IsNotExist(err) {
		check(os.WriteFile(marker, nil, 0o600))
		id, _ := next()
		post("invocation/"+id+"/response", `"first process"`, "")
		askAndHangUp()
		fmt.Println("lost")
		for {
			if _, err := os.Stat(marker + ".end"); err == nil {
				os.Exit(0)
			}
			time.Sleep(time.Millisecond)
		}
	}
	for {
		id, _ := next()
		post("invocation/"+id+"/response", `"second process"`, "")
	}
}

// askAndHangUp asks for work, ends its side of the connection, and returns when
// the other side has seen that.
func askAndHangUp() {
	conn, err := net.Dial("tcp", os.Getenv("AWS_LAMBDA_RUNTIME_API"))
	check(err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: runtime\r\n\r\n")
	check(err)
	check(conn.(*net.TCPConn).CloseWrite())
	_, err = io.Copy(io.Discard, conn)
	check(err)
}

func url(path string) string {
	return "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/" + path
}

func next() (id string, status int) {
	resp, err := http.Get(url("invocation/next"))
	check(err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	check(err)
	return resp.Header.Get("Lambda-Runtime-Aws-Request-Id"), resp.StatusCode
}

func post(path, body, errorType string) (status int) {
	req, err := http.NewRequest(http.MethodPost, url(path), bytes.NewBufferString(body))
	check(err)
	if errorType != "" {
		req.Header.Set("Lambda-Runtime-Function-Error-Type", errorType)
	}
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
