// Package bill says what is paid for, and what that costs: all that measures speaks of
// the same prices.
package bill

// On-demand prices in us-east-1 as of November 2026, in dollars. Free tiers are left
// out: they are an account's, not a product's.
const (
	PerFrame    = 1.00 / 1e6 // of up to 32 KB, in either direction, answers too
	PerCall     = 0.20 / 1e6
	PerGBSecond = 0.0000133334 // arm64
	PerWRU      = 0.625 / 1e6
	PerRRU      = 0.125 / 1e6
)

// What a local run cannot measure: how long the functions take on AWS.
const (
	RequestGBSeconds = 0.020 * 0.25 // 20 ms of 256 MB
	FanoutGBSeconds  = 0.060 * 0.5  // 60 ms of 512 MB
)
