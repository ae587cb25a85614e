package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// report prints the results and returns the exit code.
func report(c config, results []result, insisted []insistence) (int, error) {
	var once, more, never, clicks, refused, again, failed int
	var unserved []string
	for _, r := range results {
		clicks += r.Clicks
		refused += r.Refused
		again += r.Again
		failed += r.Failed
		if r.unserved() {
			unserved = append(unserved, r.Order)
		}
		switch {
		case r.Charged == 1:
			once++
		case r.Charged > 1:
			more++
		default:
			never++
		}
	}
	summary := fmt.Sprintf("%d orders, %d clicks at %d replicas: %d charged once, %d more than once, %d never; %d clicks refused, %d repeated after 503, %d failed",
		len(results), clicks, c.replicas, once, more, never, refused, again, failed)
	satisfied, unanswered, retries := 0, 0, ""
	for _, r := range insisted {
		switch {
		case r.satisfied():
			satisfied++
		case r.Receipt == "" && r.Charged <= 1:
			unanswered++
		}
	}
	if len(insisted) > 0 {
		retries = fmt.Sprintf("%d clients lost patience and asked again under the same Idempotency-Key: %d got the receipt of the first try and were charged once",
			len(insisted), satisfied)
	}
	if c.json {
		err := json.NewEncoder(os.Stdout).Encode(map[string]any{
			"orders": results, "once": once, "more": more, "never": never, "summary": summary,
			"retries": insisted, "satisfied": satisfied, "retries_summary": retries,
		})
		if err != nil {
			return 2, err
		}
	} else if err := table(results, insisted, summary, retries); err != nil {
		return 2, err
	}
	switch wrong := len(insisted) - satisfied - unanswered; {
	case c.unlocked && more == 0:
		return 2, errors.New("without the lock no order was charged twice: this run shows nothing, try more -clicks")
	case more > 0 || wrong > 0:
		return 1, nil
	case len(unserved) > 0 && never == len(unserved):
		return 2, fmt.Errorf("the service was unavailable for the orders %s: %d clicks failed after up to %d tries each, and nothing was charged there",
			strings.Join(unserved, ", "), failed, tries.Attempts)
	case never > 0:
		return 1, nil
	case failed > 0:
		return 2, fmt.Errorf("%d clicks got neither a receipt nor a refusal", failed)
	case unanswered > 0:
		return 2, fmt.Errorf("%d clients asked %d times and got no answer in time", unanswered, mostTries)
	}
	return 0, nil
}

func table(results []result, insisted []insistence, summary, retries string) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "order\tclicks\tcharged\tpaid\trefused\trepeated\tfailed\t")
	for _, r := range results {
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Order, r.Clicks, r.Charged, r.Paid, r.Refused, r.Again, r.Failed)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Println(summary)
	if len(insisted) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\norder\ttries\tgiven up\tin progress\tcharged\treceipt\treplayed\t")
	for _, r := range insisted {
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%s\t%v\t\n", r.Order, r.Tries, r.GivenUp, r.Refused, r.Charged, r.Receipt, r.Replayed)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Println(retries)
	return nil
}
