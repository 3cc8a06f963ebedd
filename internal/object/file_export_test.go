package object

import "time"

// Hasten makes the file hardly wait between its tries.
func (f *File) Hasten() *File {
	f.wait = time.Millisecond
	return f
}

// Held is how many bytes the file keeps.
func (f *File) Held() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}
