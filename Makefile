# How sam build makes the functions, by the target build-<logical id>. The executable
# is the same whoever builds it, wherever and from whichever commit, so that a
# deployment replaces only functions whose code has changed: no path (-trimpath), no
# commit (-buildvcs), no C library, and no symbols (-s -w), a third of the size.
# Recipes have no shell in them, for those whose shell is Windows'.
export GOOS := linux
export GOARCH := arm64
export CGO_ENABLED := 0

build = go build -trimpath -buildvcs=false "-ldflags=-s -w" -o "$(ARTIFACTS_DIR)/bootstrap" ./functions/$(1)

build-AckFunction: ; $(call build,ack)
build-AuditorFunction: ; $(call build,auditor)
build-AuthorizerFunction: ; $(call build,authorizer)
build-ConnectFunction: ; $(call build,connect)
build-ConversationFunction: ; $(call build,conversation)
build-DefaultFunction: ; $(call build,default)
build-DeliverFunction: ; $(call build,fanout)
build-DisconnectFunction: ; $(call build,disconnect)
build-FanoutFunction: ; $(call build,fanout)
build-PublishFunction: ; $(call build,publish)
build-ReviseFunction: ; $(call build,revise)
build-SendFunction: ; $(call build,send)
build-SyncFunction: ; $(call build,sync)
