// Package storetest supports tests of artifact stores. [TestBucket] is a suite that every [store.Bucket] passes. [S3]
// is a stand-in of S3 over HTTP.
package storetest
