// Package operate is the operators' part of the store: it looks at the tables as they are,
// audits them, raises a head that fell behind, erases what a user has sent, and fills
// tables from restored ones. No function calls it but the auditor.
package operate

import (
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Operator looks at the tables, checks them and mends them. It asks for no one's right,
// and shows what no user sees. It is safe for concurrent use.
type Operator struct {
	db    *table.DB
	store *store.Store
}

// New makes an Operator of a store's tables. What is written in the name of the product
// is written by the store.
func New(s *store.Store) *Operator { return &Operator{db: s.DB(), store: s} }
