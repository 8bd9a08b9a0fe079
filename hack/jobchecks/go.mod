module tfjob-controller/hack/jobchecks

go 1.26.0

require (
	github.com/tidwall/gjson v1.20.3
	github.com/yuin/gopher-lua v1.1.2
)

require (
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.3.0 // indirect
)
