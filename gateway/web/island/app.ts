import './live';
import './time';
import './keys';
import './form';
