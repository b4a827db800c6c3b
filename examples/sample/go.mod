module example.org/larder

go 1.25
