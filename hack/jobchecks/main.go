// Command jobchecks judges an object on its standard input as clients of training jobs do, with the libraries that these
// clients use.
//
//	jobchecks gjson PATH    the object that the path finds, or the first of several, as Katib reads conditions of trials
//	jobchecks lua SCRIPT    status and message of the table that the script returns, as a health check of Argo CD
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/tidwall/gjson"
	lua "github.com/yuin/gopher-lua"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: jobchecks gjson|lua TEXT"))
	}
	object, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "gjson":
		found := gjson.GetBytes(object, os.Args[2])
		if all := found.Array(); found.IsArray() && len(all) > 0 {
			found = all[0]
		}
		if found.IsObject() {
			fmt.Println(found.Raw)
		}
	case "lua":
		status, message, err := health(object, os.Args[2])
		if err != nil {
			fail(err)
		}
		fmt.Printf("%s: %s\n", status, message)
	default:
		fail(fmt.Errorf("unknown language %s", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// health runs the script with the libraries that Argo CD opens for health checks, and the object as obj.
func health(object []byte, script string) (string, string, error) {
	var decoded any
	if err := json.Unmarshal(object, &decoded); err != nil {
		return "", "", err
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", value(state, decoded))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returns no table")
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String(), nil
}

func value(state *lua.LState, decoded any) lua.LValue {
	switch decoded := decoded.(type) {
	case bool:
		return lua.LBool(decoded)
	case float64:
		return lua.LNumber(decoded)
	case string:
		return lua.LString(decoded)
	case []any:
		table := state.NewTable()
		for _, item := range decoded {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range decoded {
			table.RawSetString(key, value(state, item))
		}
		return table
	}
	return lua.LNil
}
