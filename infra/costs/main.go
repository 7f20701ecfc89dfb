// Command costs says what a product pays in a month.
//
//	go run ./infra/costs -messages 1e6 -group 2 -devices 1000
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/inorder-im/inorder/infra/costs/bill"
	"github.com/inorder-im/inorder/shared/chat"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(2)
	}
}

// month is what there is in a month.
type month struct {
	messages, devices, hours, kept float64
	group                          int
}

func run(args []string, out io.Writer) error {
	var m month
	flags := flag.NewFlagSet("costs", flag.ContinueOnError)
	flags.Float64Var(&m.messages, "messages", 1e6, "`number` of messages a month, such as 1e6")
	flags.IntVar(&m.group, "group", 2, "`members` of a conversation, from 2 to 1000, all of them online and looking")
	flags.Float64Var(&m.devices, "devices", 1000, "`number` of devices")
	flags.Float64Var(&m.hours, "hours", 24, "for how many `hours` a day each is connected")
	flags.Float64Var(&m.kept, "kept", 12, "for how many `months` messages are kept, or the product has been running")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is no flag; -h lists them", flags.Arg(0))
	case !(m.messages >= 0 && m.messages <= 1e15):
		return fmt.Errorf("-messages %g: want a number of messages, from 0 to 1e15", m.messages)
	case m.group < 2 || m.group > chat.MaxGroupMembers:
		return fmt.Errorf("-group %d: want from 2 to %d members; infra/COSTS.md has what larger ones cost, under Crowds", m.group, chat.MaxGroupMembers)
	case !(m.devices >= 0 && m.devices <= 1e12):
		return fmt.Errorf("-devices %g: want a number of devices, from 0 to 1e12", m.devices)
	case !(m.hours >= 0 && m.hours <= 24):
		return fmt.Errorf("-hours %g: want from 0 to 24", m.hours)
	case !(m.kept >= 0 && m.kept <= 1200):
		return fmt.Errorf("-kept %g: want from 0 to 1200 months", m.kept)
	}
	measured, err := bill.Measured()
	if err != nil {
		return err
	}
	return m.write(out, measured)
}

// write returns the month's bill: what is done, by service, and what is kept.
func (m month) write(out io.Writer, measured map[string]bill.Use) error {
	talk := bill.Message(measured, m.group).Times(m.messages)
	idle := measured[bill.DeviceMonth].Times(m.devices * m.hours / 24)
	kept := bill.Use{StoredBytes: talk.StoredBytes * m.kept}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\t\n", args...) }
	say("\tmessages\tdevices\tin all, $")
	sum := 0.0
	for i, l := range talk.Plus(idle).Lines() {
		say("%s\t%.2f\t%.2f\t%.2f", l.What, talk.Lines()[i].Dollars, idle.Lines()[i].Dollars, l.Dollars)
		sum += l.Dollars
	}
	for _, l := range kept.Storage() {
		say("%s, %.1f GB\t%.2f\t\t%.2f", l.What, l.Amount, l.Dollars, l.Dollars)
		sum += l.Dollars
	}
	say("a month\t\t\t%.2f", sum)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
