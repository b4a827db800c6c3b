// Package storetest has what tests of artifact stores need: [TestBucket], which every [store.Bucket] passes, and [S3], a stand-in
// of S3 over HTTP.
package storetest
