package seaweed

// Translate is translate, for tests of what the filer's events say.
var Translate = translate
