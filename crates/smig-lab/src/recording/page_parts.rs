//! Converts the loads of pages: what each request was in its page.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use smig_link::Time;

use super::observation::{span_name, span_outcome};
use crate::scenario::{Discovery, Page};
use crate::timeline::{self, PagePart, PageSpan, Timeline, micros_after};
use crate::workload::{Observation, ScreenFrame};

/// Adds the loads of pages to a timeline, and to each of their requests, whose spans it has already, what it was in the page.
pub fn add_page_loads(
    timeline: &mut Timeline,
    observation: &Observation,
    pages: &BTreeMap<String, Page>,
) {
    let start = Time::from_nanos(observation.start_monotonic_ns);
    let origin = timeline.origin();
    let micros = |ns: u64| micros_after(origin, Time::from_nanos(start.as_nanos() + ns));
    let load_name = |page: &str, number: u32| format!("{page}, load {}", number + 1);
    let mut parts: BTreeMap<String, PagePart> = BTreeMap::new();
    let graphs: BTreeMap<&String, _> =
        pages.iter().map(|(name, page)| (name, page.resources())).collect();
    for object in &observation.objects {
        let Some(resources) = graphs.get(&object.name) else { continue };
        let count = u32::try_from(resources.len()).unwrap_or(u32::MAX).max(1);
        let (load, index) = (object.number / count, (object.number % count) as usize);
        let Some(resource) = resources.get(index) else { continue };
        let found_in = match resource.discovery {
            Discovery::Start => None,
            Discovery::Document { .. } => Some(0),
            Discovery::Parent { index } => Some(index),
        };
        let number_of = |index: usize| load * count + u32::try_from(index).unwrap_or(u32::MAX);
        let phases = object.phases;
        let part = PagePart {
            page: load_name(&object.name, load),
            resource: resource.name.clone(),
            kind: resource.kind.to_string(),
            found_in: found_in.map(|index| span_name(&object.name, number_of(index))),
            connect_us: phases.connect_ns.map(micros),
            sent_us: phases.sent_ns.map(micros),
            finished_us: phases.finished_ns.map(micros),
        };
        parts.insert(span_name(&object.name, object.number), part);
    }
    for span in &mut timeline.spans {
        span.part = parts.remove(&span.name);
    }
    timeline.pages.extend(observation.pages.iter().map(|load| PageSpan {
        name: load_name(&load.name, load.number),
        from_us: micros(load.started_ns),
        rendered_us: load.rendered_ns.map(micros),
        visible_us: load.visible_ns.map(micros),
        to_us: micros(load.ended_ns.max(load.started_ns)),
        clock_error_us: load.clock_error_ns.map(|error_ns| error_ns.div_ceil(1_000)),
        outcome: span_outcome(&load.outcome),
    }));
    let mut before: Option<&ScreenFrame> = None;
    for frame in &observation.frames {
        let is_same = |before: &ScreenFrame| {
            (&before.page, before.load, &before.jpeg) == (&frame.page, frame.load, &frame.jpeg)
        };
        let has_changed = before.is_none_or(|before| !is_same(before));
        timeline.frames.push(timeline::ScreenFrame {
            page: load_name(&frame.page, frame.load),
            at_us: micros(frame.at_ns),
            progress: frame.progress,
            jpeg: if has_changed { STANDARD.encode(&frame.jpeg) } else { String::new() },
        });
        before = Some(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::super::add_observation;
    use super::*;
    use crate::scenario::{SizeClass, TransferDirection};
    use crate::workload::{ObjectResult, Outcome, PageLoad, RequestPhases};

    fn object(number: u32) -> ObjectResult {
        ObjectResult {
            name: "front".into(),
            number,
            client: "user".into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 100,
            started_ns: 1_000_000 * u64::from(number),
            phases: RequestPhases {
                connect_ns: None,
                sent_ns: Some(2_000_000),
                finished_ns: Some(8_000_000),
            },
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 7_000_000,
            bytes: 100,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome: Outcome::Complete,
            cancel: None,
            progress: Vec::new(),
        }
    }

    #[test]
    fn requests_of_the_second_load_name_their_load_and_who_found_them() {
        let text = "document = 100\nresources.app = { kind = 'script', size = 100 }\n\
                    resources.data = { kind = 'image', size = 100, parent = 'app' }\n";
        let pages = BTreeMap::from([("front".to_owned(), toml::from_str(text).unwrap())]);
        let load = PageLoad {
            name: "front".into(),
            number: 1,
            started_ns: 0,
            rendered_ns: Some(7_500_000),
            visible_ns: None,
            visual: None,
            omitted_frames: 0,
            clock_error_ns: Some(1_500),
            ended_ns: 8_000_000,
            outcome: Outcome::Complete,
            replay: None,
        };
        // The page has three resources: these are those of the second load.
        let objects = vec![object(3), object(4), object(5)];
        let observation = Observation { objects, pages: vec![load], ..Observation::default() };
        let mut timeline = Timeline::new("t", Time::ZERO);
        add_observation(&mut timeline, &observation);
        add_page_loads(&mut timeline, &observation, &pages);
        let parts: Vec<_> = timeline.spans.iter().map(|span| span.part.clone().unwrap()).collect();
        assert!(parts.iter().all(|part| part.page == "front, load 2"), "{parts:?}");
        let found: Vec<_> = parts.iter().map(|part| part.found_in.as_deref()).collect();
        assert_eq!(found, [None, Some("front 4"), Some("front 5")]);
        assert_eq!(parts[1].resource, "app");
        assert_eq!((parts[2].kind.as_str(), parts[2].sent_us), ("image", Some(2_000)));
        let page = &timeline.pages[0];
        assert_eq!((page.name.as_str(), page.to_us), ("front, load 2", 8_000));
        assert_eq!((page.rendered_us, page.clock_error_us), (Some(7_500), Some(2)));
    }

    #[test]
    fn the_picture_of_a_frame_is_there_where_the_screen_has_changed() {
        let frame = |at_ns, progress, jpeg: &[u8]| ScreenFrame {
            page: "front".into(),
            load: 1,
            at_ns,
            progress,
            jpeg: jpeg.to_vec(),
        };
        let frames = vec![frame(1_000, 10, b"a"), frame(2_000, 10, b"b"), frame(3_000, 100, b"b")];
        let observation = Observation { frames, ..Observation::default() };
        let mut timeline = Timeline::new("t", Time::ZERO);
        add_page_loads(&mut timeline, &observation, &BTreeMap::new());
        let frames: Vec<_> = timeline
            .frames
            .iter()
            .map(|frame| (frame.page.as_str(), frame.at_us, frame.progress, frame.jpeg.as_str()))
            .collect();
        let name = "front, load 2";
        assert_eq!(frames, [(name, 1, 10, "YQ=="), (name, 2, 10, "Yg=="), (name, 3, 100, "")]);
    }
}
