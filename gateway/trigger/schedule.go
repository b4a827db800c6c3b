package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a list of times, in the notation of cron.
type Schedule struct {
	spec  string
	zone  *time.Location
	times cron.Schedule
}

// ParseSchedule reads the five fields of crontab (minute, hour, day, month, weekday), or one of @hourly, @daily,
// @weekly, @monthly and @yearly. zone is the name of a time zone. If it is empty, it is UTC.
func ParseSchedule(spec, zone string) (*Schedule, error) {
	if strings.Contains(spec, "=") || len(spec) > 200 {
		// The parser panics at some time zones in the text.
		return nil, fmt.Errorf("cron %.100q: the time zone has a key of its own, time_zone", spec)
	}
	if strings.HasPrefix(strings.TrimSpace(spec), "@every") {
		return nil, fmt.Errorf("cron %.100q: it names no times; write */5 * * * * for every five minutes", spec)
	}
	at, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("time_zone %.100q is not known: want a name such as Europe/Berlin", zone)
	}
	times, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, fmt.Errorf("cron %.100q: %w", spec, err)
	}
	s := &Schedule{spec: spec, zone: at, times: times}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return nil, fmt.Errorf("cron %.100q: there is no such day", spec)
	}
	return s, nil
}

// String returns the notation of the schedule.
func (s *Schedule) String() string {
	if s.zone == time.UTC {
		return s.spec
	}
	return s.spec + " " + s.zone.String()
}

// Next returns the first time after t.
func (s *Schedule) Next(t time.Time) time.Time {
	next := s.times.Next(t.In(s.zone))
	if next.IsZero() {
		return next
	}
	return next.UTC()
}

// maxMissed bounds the count of missed times.
const maxMissed = 10_000

// passed returns the last time of the schedule after since and not after now, and the number of those before it.
// Returns false if there is none.
func (s *Schedule) passed(since, now time.Time) (last time.Time, earlier int, ok bool) {
	next := s.Next(since)
	for !next.IsZero() && !next.After(now) {
		if ok {
			earlier++
		}
		last, ok = next, true
		if earlier == maxMissed {
			// The rest is not counted. The last time is found from the end.
			since = now.Add(-366 * 24 * time.Hour)
			if next = s.Next(since); next.After(last) && !next.After(now) {
				last = next
			}
			return last, earlier, true
		}
		next = s.Next(next)
	}
	return last, earlier, ok
}

// clockStep bounds a wait for a time of a schedule, because the clock of the machine may be set, and a machine that
// sleeps stops its timers.
const clockStep = time.Minute

// keepTime starts the work of a schedule at its times, until ctx ends.
func (t *Triggers) keepTime(ctx context.Context, e *entry) {
	for {
		wait := clockStep
		now := t.Now()
		last, earlier, ok := e.Cron.passed(e.lastTime(), now)
		if ok {
			if err := t.fireTime(ctx, e, last, earlier); err != nil && ctx.Err() == nil {
				t.Log.Error("cannot start the work of a schedule; it is tried again", "trigger", e.Name, "err", err)
			}
		} else if next := e.Cron.Next(now); !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		if t.Sleep(ctx, max(wait, time.Millisecond)) != nil {
			return
		}
	}
}

// fireTime starts the work for a time of a schedule, once for all times that were missed before it.
func (t *Triggers) fireTime(ctx context.Context, e *entry, at time.Time, missed int) error {
	stamp := at.Format(time.RFC3339)
	title := "at " + stamp
	if missed > 0 {
		title += fmt.Sprintf("; %d earlier times were missed", missed)
		if missed == 1 {
			title = "at " + stamp + "; one earlier time was missed"
		}
	}
	f := fields{"time": stamp, "missed": json.Number(strconv.Itoa(missed))}
	ev := Event{Kind: KindCron, Key: "cron " + stamp, Title: title, Time: at, Missed: missed}.fill(&e.Trigger, f)
	_, _, err := t.claimRun(ctx, e, ev)
	if err != nil && !isRefused(err) {
		return err
	}
	// A paused trigger does not make up for its times when it is resumed.
	return e.change(func(s *state) { s.Last = at })
}
