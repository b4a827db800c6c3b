// Package terminal has terminals that several people look at, and that outlive their connections.
//
// # Nouns
//
// A [Terminal] is the output of one program with a terminal, numbered by byte from its start, and the people at it. The
// program runs elsewhere. A [Process] leads there, and may be replaced after a broken connection. The Terminal keeps the
// end of the output, its window.
//
// A [Viewer] is one reader with a cursor. It says where it stopped, and gets all bytes from there, none twice. If they
// are no longer kept, it gets an [ItemReset] and goes on from a safe point, an offset at which no escape sequence and no
// character is cut. The [Scanner] knows these points, and the modes of the screen there.
//
// The owner is the viewer that typed last. The size of the terminal is the owner's, and the program waits for the owner
// alone. All other viewers may be as slow as they are.
//
// A [Mark] is an escape sequence by which a shell says where a command begins and ends (OSC 133 and OSC 633). Marks are
// the words of a program in the container, and prove nothing. [Launch] starts a shell that prints them.
package terminal
