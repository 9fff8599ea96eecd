module tautline.dev/examples/echo

go 1.19
