//! Paths: which are refused, and which are served.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use http::StatusCode;
use smig_files::{FileOptions, HiddenFiles, Symlinks};

use crate::site::Site;

/// A directory with a secret beside it and symlinks of every kind in it.
fn create_site(options: FileOptions) -> Site {
    let site = Site::with_options(options);
    site.write("a.txt", "inside").write("sub/b.txt", "inside").write("100%.txt", "inside");
    site.write("../secret.txt", "secret").write(".env", "hidden").write(".git/config", "hidden");
    site.write(".well-known/security.txt", "contact");
    symlink("sub/b.txt", site.path("link-inside")).unwrap();
    symlink("../a.txt", site.path("sub/link-up-inside")).unwrap();
    symlink("../secret.txt", site.path("link-up")).unwrap();
    symlink(site.path("../secret.txt"), site.path("link-absolute")).unwrap();
    symlink("..", site.path("link-parent")).unwrap();
    symlink("/proc/self/root", site.path("link-magic")).unwrap();
    symlink("/dev/zero", site.path("link-device")).unwrap();
    symlink("link-loop", site.path("link-loop")).unwrap();
    symlink("nowhere", site.path("link-dangling")).unwrap();
    site
}

#[tokio::test]
async fn no_path_leaves_the_directory() {
    let site = create_site(FileOptions::default());
    let paths = [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/%2e./secret.txt",
        "/..%2fsecret.txt",
        "/..%2Fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/sub/..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..%5Csecret.txt",
        "/%5c..%5csecret.txt",
        "/%252e%252e/secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/..%252fsecret.txt",
        "/..%00/secret.txt",
        "/%00",
        "/a.txt%00.png",
        "/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%c0%af..%c0%afsecret.txt",
        "/%uff0e%uff0e/secret.txt",
        "//secret.txt",
        "/sub//../../secret.txt",
        "//etc/passwd",
        "/etc/passwd",
        "/link-up",
        "/link-absolute",
        "/link-parent/secret.txt",
        "/link-parent/root/a.txt",
        "/link-magic/etc/passwd",
        "/link-device",
        "/link-loop",
        "/link-dangling",
        "/a.txt/",
        "/a.txt/../a.txt",
        "/./a.txt",
        "/sub/./b.txt",
        "/%2e/a.txt",
    ];
    for path in paths {
        // Twice: the second response may come from the cache.
        for _ in 0..2 {
            let response = site.get(path).await;
            let refused =
                [StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST].contains(&response.status);
            assert!(refused, "{path}: {}", response.status);
            assert!(!response.text().contains("secret") && !response.text().contains("inside"));
        }
    }
}

#[tokio::test]
async fn each_path_has_its_status() {
    let site = create_site(FileOptions::default());
    let table = [
        ("/a.txt", StatusCode::OK),
        ("/a%2etxt", StatusCode::OK),
        ("/100%25.txt", StatusCode::OK),
        ("/100%.txt", StatusCode::BAD_REQUEST),
        ("/link-inside", StatusCode::OK),
        ("/sub/link-up-inside", StatusCode::OK),
        ("/..", StatusCode::BAD_REQUEST),
        ("/a%2fb", StatusCode::BAD_REQUEST),
        ("/a%00", StatusCode::BAD_REQUEST),
        ("/a%5cb", StatusCode::BAD_REQUEST),
        ("/.env", StatusCode::NOT_FOUND),
        ("/%2eenv", StatusCode::NOT_FOUND),
        ("/.git/config", StatusCode::NOT_FOUND),
        ("/.git/", StatusCode::NOT_FOUND),
        ("/.git", StatusCode::NOT_FOUND),
        ("/.well-known/security.txt", StatusCode::OK),
        ("/missing", StatusCode::NOT_FOUND),
    ];
    for (path, expected) in table {
        assert_eq!(site.get(path).await.status, expected, "{path}");
    }
    let long = format!("/{}", "x".repeat(300));
    assert_eq!(site.get(&long).await.status, StatusCode::NOT_FOUND);
    let deep = "/x".repeat(5_000);
    assert_eq!(site.get(&deep).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn symlinks_by_option() {
    let refusing_site =
        create_site(FileOptions { symlinks: Symlinks::Refuse, ..FileOptions::default() });
    let following_site =
        create_site(FileOptions { symlinks: Symlinks::Follow, ..FileOptions::default() });
    let table = [
        ("/a.txt", StatusCode::OK, StatusCode::OK),
        ("/link-inside", StatusCode::NOT_FOUND, StatusCode::OK),
        ("/link-up", StatusCode::NOT_FOUND, StatusCode::OK),
        ("/link-absolute", StatusCode::NOT_FOUND, StatusCode::OK),
        ("/link-parent/secret.txt", StatusCode::NOT_FOUND, StatusCode::OK),
        ("/link-device", StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        ("/../secret.txt", StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST),
    ];
    for (path, refused, followed) in table {
        assert_eq!(refusing_site.get(path).await.status, refused, "{path}");
        assert_eq!(following_site.get(path).await.status, followed, "{path}");
    }
}

#[tokio::test]
async fn hidden_files_by_option() {
    let site =
        create_site(FileOptions { hidden_files: HiddenFiles::Serve, ..FileOptions::default() });
    assert_eq!(site.get("/.env").await.text(), "hidden");
    assert_eq!(site.get("/.git/config").await.text(), "hidden");
    assert_eq!(site.get("/../secret.txt").await.status, StatusCode::BAD_REQUEST);
}

/// Opening a FIFO without a writer would block.
#[tokio::test]
async fn only_regular_files_are_served() {
    let site = Site::new();
    let root = std::fs::File::open(site.path("")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(&root, "fifo", rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(site.path("socket")).unwrap();
    site.write("page", "x");
    rustix::fs::mknodat(&root, "page.gz", rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in ["/fifo", "/socket", "/fifo/", "/socket/x"] {
        assert_eq!(site.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let page = site.get_with("/page", &[(http::header::ACCEPT_ENCODING, "gzip")]).await;
    assert_eq!((page.status, page.text()), (StatusCode::OK, "x"));
}

#[tokio::test]
async fn names_may_have_any_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff \n%41?#&");
    std::fs::write(site.path("").join(name), "odd").unwrap();
    assert_eq!(site.get("/%ff%20%0a%2541%3f%23&").await.text(), "odd");
    site.write("é", "accent");
    assert_eq!(site.get("/%C3%A9").await.text(), "accent");
    assert_eq!(site.get("/%C3%A9?query=%00").await.text(), "accent");
}
