import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import { access } from './api/access.svelte';

access.takeFromAddress();
const target = document.getElementById('app');
if (target) mount(App, { target });
