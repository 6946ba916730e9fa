// Package pages reads all pages of a list.
package pages

import (
	"context"
	"iter"
)

// Read yields the items of all pages. The call takes a page token, and returns the page and the next page token.
func Read[T any](ctx context.Context, call func(context.Context, string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			page, next, err := call(ctx, token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// All returns all items, or the first error.
func All[T any](pages iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for one, err := range pages {
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
