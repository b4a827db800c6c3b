package gateway

import (
	"context"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/route"
)

func (api *commandsAPI) processes(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	list, err := api.Executor.Programs.Processes(c.R.Context(), st.Caller.String())
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.Process{}
	}
	return c.Reply(list)
}

type processQuery struct {
	Follow bool `json:"follow,omitempty" jsonschema:"go on until the process ends"`
}

func (api *commandsAPI) processOutput(c *route.Call) error {
	var q processQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	done, err := c.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(c.R.Context())
	defer cancel()
	out := &execLines{call: c, hangUp: cancel}
	stop := out.keepAlive(api.Heartbeat)
	defer context.AfterFunc(c.Draining(), cancel)()
	err = api.Executor.Programs.ProcessOutput(ctx, st.Caller.String(), c.R.PathValue("process"), q.Follow, out.to("stdout"),
		out.to("stderr"))
	stop()
	if err != nil {
		return out.fail(err)
	}
	return out.send(ExecLine{End: true})
}

func (api *commandsAPI) stopProcess(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	if err := api.Executor.Programs.StopProcess(c.R.Context(), st.Caller.String(), c.R.PathValue("process")); err != nil {
		return err
	}
	return c.Reply(struct{}{})
}
