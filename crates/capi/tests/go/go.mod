module tautline.dev/tests/go

go 1.21
