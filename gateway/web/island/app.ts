import './live';
import './time';
import './keys';
import './talk';
import './form';
import './shell';
import './session';
import './notify';
