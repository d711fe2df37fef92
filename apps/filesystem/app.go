package main

import (
	berth "github.com/berthos/berth/sdk/go"
)

// workspace is where relative paths start.
const workspace = "/workspace"

// Limits of one answer. What is larger is cut, and the answer says so; whole
// files of any size go over a raw stream.
const (
	maxText    = 1 << 20 // bytes of text, which JSON can blow up sixfold
	maxBinary  = 4 << 20 // bytes, before base64
	maxEdit    = 8 << 20 // bytes of a file that edit_file changes
	maxDiff    = 256 << 10
	maxFiles   = 100     // of read_multiple_files
	maxEntries = 10_000  // of a list, tree or search
	maxDepth   = 64      // of a tree
	maxListed  = 2 << 20 // bytes of names in a list, tree or search
	maxPattern = 1 << 10
)

// files answers the calls. base is where relative paths start.
type files struct {
	base string
	// edits has room for one: an edit reads, changes and writes a file, and two
	// at once would lose one of them.
	edits chan struct{}
}

func newApp(f files) *berth.App {
	f.edits = make(chan struct{}, 1)
	app := berth.New("filesystem")
	berth.Export(app, "read_file", "Reads a text file (UTF-8). Long files are cut and the answer says where to go on; "+
		"head, tail, or offset with limit choose lines. With a raw stream the whole file goes there.", f.readFile)
	berth.Export(app, "read_binary_file", "Reads bytes of any file as base64; offset and limit choose a part. "+
		"With a raw stream the bytes go there.", f.readBinaryFile)
	berth.Export(app, "read_multiple_files", "Reads several text files. A file that cannot be read does not fail the others.", f.readMultipleFiles)
	berth.Export(app, "write_file", "Creates a text file or replaces its content. "+
		"With a raw stream the content is taken from there.", f.writeFile)
	berth.Export(app, "write_binary_file", "Creates a file or replaces its content with bytes given as base64. "+
		"With a raw stream the bytes are taken from there.", f.writeBinaryFile)
	berth.Export(app, "edit_file", "Replaces exact pieces of a text file and returns the changes as a unified diff. "+
		"Each old_text must occur exactly once unless replace_all is set. If one edit fails, none is made.", f.editFile)
	berth.Export(app, "create_directory", "Creates a folder, with its parents. A folder that exists is fine.", f.createDirectory)
	berth.Export(app, "list_directory", "Lists a folder, sorted by name.", f.listDirectory)
	berth.Export(app, "directory_tree", "Lists a folder and everything below it as a tree. Symbolic links are not followed.", f.directoryTree)
	berth.Export(app, "move_file", "Moves or renames a file or folder. An existing destination is an error unless overwrite is set.", f.moveFile)
	berth.Export(app, "search_files", "Finds files and folders by a glob pattern such as *.go, src/**/*.{ts,tsx} or **/test. "+
		"A pattern without a slash matches names at any depth.", f.searchFiles)
	berth.Export(app, "get_file_info", "Says what stands at a path: type, size, mode, times. A symbolic link is described itself.", f.getFileInfo)
	berth.Export(app, "delete_file", "Deletes a file or an empty folder; with recursive, a folder and everything in it.", f.deleteFile)
	berth.Export(app, "list_allowed_directories", "Lists the folders that this app can reach, and whether it can write there.", f.listAllowedDirectories)
	return app
}
